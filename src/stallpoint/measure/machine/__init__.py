"""What is read of the machine beside each measurement."""
