//go:build nozookeeper

package stores

var openZooKeeper opener // left out
