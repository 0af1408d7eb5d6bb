"""The one-way joins of a site, at one of its units: what it keeps, what it does for other sites, and how rows find their partners."""
