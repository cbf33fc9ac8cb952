"""Published models with their exact bytes, worked out by hand: see models.json."""
