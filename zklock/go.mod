module github.com/dlock-go/dlock/zklock

go 1.26.0

require (
	github.com/dlock-go/dlock v0.0.0
	github.com/go-zookeeper/zk v1.0.4
)

replace github.com/dlock-go/dlock => ../
