// Command curator is the part of a shop that has moved from Java to Go. The
// rest, in Java, acquires the same lock in the same ZooKeeper by its path:
//
//	InterProcessMutex lock = new InterProcessMutex(curator, "/locks/stock/42");
//
// Both exclude each other, wake each other, and are served in the order of arrival.
// Both read the stock and write it back later, which would sell too much without
// the lock.
//
//	go run ./curator --zookeeper localhost:2181 --sell 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

func main() {
	servers := flag.String("zookeeper", "localhost:2181", "the servers that Java uses: host:port,host:port")
	item := flag.String("item", "42", "what is sold")
	times := flag.Int("sell", 1, "how often")
	flag.Parse()
	if err := sell(context.Background(), strings.Split(*servers, ","), *item, *times); err != nil {
		log.Fatal(err)
	}
}

func sell(ctx context.Context, servers []string, item string, times int) error {
	data, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer data.Close()
	store, err := zklock.New(servers, &zklock.Options{
		Root:    "/locks/stock", // the path of Java's lock without its last part, which is the name here
		Timeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()
	for range times {
		err := locks.Do(ctx, item, func(ctx context.Context) error {
			return sellOne(ctx, data, "/stock-of-"+item)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sellOne is safe only with the lock. A holder that has lost it and does not know that yet fails at Set:
// the version is no longer that of its Get.
func sellOne(ctx context.Context, data *zk.Conn, path string) error {
	text, stat, err := data.Get(path)
	if err != nil {
		return err
	}
	stock, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if stock == 0 {
		return errors.New("sold out")
	}
	fmt.Println("selling one of", stock)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err = data.Set(path, []byte(strconv.Itoa(stock-1)), stat.Version)
	return err
}
