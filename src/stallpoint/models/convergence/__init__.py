"""How many steps training needs: against the mini-batch, and what the noise of gradients says of it."""
