"""Web pages and servers: what serving and the studio share."""
