"""Checkpoints, from a rank's side: which one to go on from, and being asked for a new one."""
