"""The database of runs, as a test fills it."""
import sqlite3


def change_runs(home, sql, *values):
    with sqlite3.connect(home / "runs.db") as records:
        records.execute(sql, values)


def many_runs(home, count):
    """Adds copies of the run to the database of runs; their ids are 0, 1, …, in 12 hexadecimal digits."""
    with sqlite3.connect(home / "runs.db") as records:
        for table, column in (("runs", "id"), ("attempts", "run")):
            columns = [row[1] for row in records.execute(f"pragma table_info({table})")]
            row = dict(zip(columns, records.execute(f"select * from {table}").fetchone()))
            for n in range(count):
                row[column] = f"{n:012x}"
                records.execute(f"insert into {table} ({','.join(row)}) values ({','.join('?' * len(row))})", list(row.values()))
