"""What is put around torch's functions and classes, each told as it happens and taken off again."""
