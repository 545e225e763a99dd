"""What files of other programs say of a training, without a study, and cells imported from them."""
