//go:build nomemcached || onlysqlite

package stores

var openMemcached opener // left out
