//go:build noetcd || onlysqlite

package stores

var openEtcd opener // left out
