//go:build noredis || onlysqlite

package stores

var openRedis, openRedlock opener // left out
