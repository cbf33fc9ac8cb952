"""What ships beside the code: the demo model recipe, pictures, their sources and licences."""
