"""A folder for PYTHONPATH: its one module is imported by Python itself."""
