"""Predictions of iterations from their terms, and the scaling curves and tables made of them."""
