package sqllock_test

import (
	"fmt"
	"log"

	"github.com/dlock-go/dlock/sqllock"
)

func ExampleSchema() {
	texts, err := sqllock.Schema(sqllock.SQLite, "app_")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(texts[3])
	// Output:
	// CREATE TABLE IF NOT EXISTS app_meta (
	// 	key   TEXT    NOT NULL PRIMARY KEY,
	// 	value INTEGER NOT NULL
	// ) WITHOUT ROWID
}
