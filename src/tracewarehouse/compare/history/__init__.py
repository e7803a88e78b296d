"""A metric over runs in time order: results are recorded once, and a history reads them."""
