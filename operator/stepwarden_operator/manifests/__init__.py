"""The children of a TrainingJob, one kind a file: pure builders from what is asked to a manifest."""
