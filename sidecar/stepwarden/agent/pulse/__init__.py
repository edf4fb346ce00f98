"""
What a rank tells of its main thread while it works, waits or hangs: the makings of a `wire.Pulse`.

Another thread of the rank looks at the main one a few times a second. It reads frames, clocks and flags;
it takes no lock of torch's, calls no collective and nothing of the user's.
"""
