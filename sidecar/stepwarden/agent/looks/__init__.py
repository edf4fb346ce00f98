"""What is read of tensors, graphs, names and optimizers when a watch, or the boundary, asks."""
