"""
The sidecar: one per pod (on a laptop: one per machine); the sidecar of pod 0 is the job's hub.

It hears the ranks over a unix datagram socket and tells them their orders, merges what they
find into findings of the job, and answers the operator and Prometheus over HTTP.
"""
