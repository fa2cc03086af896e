//go:build !race

package zookeeper

const slowdown = 1
