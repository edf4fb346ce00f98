"""
The command line: `stepwarden run` on one machine, and `kubectl stepwarden` for a cluster.

`stepwarden run` stands in for the operator: it starts the same sidecar and the same agent, and
decides by the same policy. It imports neither of them, and no torch.
"""
