"""Ten small programs in five systems: lines of code, and seconds from the install to the first answer."""
