//go:build nozookeeper || onlysqlite

package stores

var openZooKeeper opener // left out
