package sqllock

// Postgres is PostgreSQL 12 or newer. It is tested with github.com/jackc/pgx/v5.
var Postgres Dialect = postgres{}

type postgres struct{ sqlite }

func (postgres) String() string { return "postgres" }
