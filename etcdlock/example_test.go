package etcdlock_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A store over the client that the program has already. With the prefix, dlock's
// "orders" is what etcdctl calls "shop/orders".
func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	store, err := etcdlock.New(client, &etcdlock.Options{Prefix: "shop/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()

	fmt.Println(locks.Traits().Store, locks.Traits().Fencing)
	// Output:
	// etcd strong
}

// Open takes a URL. Its errors contain no password.
func ExampleOpen() {
	ctx := context.Background()
	store, err := etcdlock.Open(ctx, "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	_, err = etcdlock.Open(ctx, "etcd://app:secret@10.0.0.1:2379?tls=perhaps", nil)
	fmt.Println(err)
	// Output:
	// bad URL: tls is "perhaps", not true or false
}
