"""
Checkpoints on disk: which there are, which of them are whole, and which are fit to go on from.

Reads files alone, never runs what a pickle in them asks for, and holds a part of one tensor at a time.
"""
