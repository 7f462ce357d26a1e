"""What a query means, as frozen data."""
