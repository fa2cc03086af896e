//go:build noredis

package stores

var openRedis, openRedlock opener // left out
