"""What every benchmark needs: the machine, processes, databases, tables and bars."""
