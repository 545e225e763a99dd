"""What runs on the nodes: training, matrix products, collectives and reads of the training set."""
