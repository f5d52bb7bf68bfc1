"""Scripts for developers: models, test data, measurements. Nothing imports them at run time."""
