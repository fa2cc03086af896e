//go:build nomemcached

package stores

var openMemcached opener // left out
