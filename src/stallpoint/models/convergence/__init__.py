"""Steps that training needs, by mini-batch, and their estimate from the noise of gradients."""
