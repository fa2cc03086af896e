//go:build noetcd

package stores

var openEtcd opener // left out
