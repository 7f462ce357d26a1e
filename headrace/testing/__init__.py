"""The oracle, arrivals and contracts that tests stand on."""
