//go:build !nopostgres && !onlysqlite

package stores

import _ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"

var _ = register(openSQL, "postgres", "postgresql")
