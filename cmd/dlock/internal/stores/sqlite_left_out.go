//go:build nosqlite

package stores

var openSQLite opener // left out
