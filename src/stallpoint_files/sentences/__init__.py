"""Rates in lines and sentences, whose counts and amounts stand in an order that says which belongs to which."""
