"""Runs beside one another: what their workdirs say, tables, pictures, and the report made of them."""
