"""Reading of rates in lines and sentences: the order of counts and amounts shows which belongs to which."""
