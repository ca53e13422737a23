"""`distserve bench`: measurements that print a table and write their samples as JSON."""
