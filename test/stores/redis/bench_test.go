package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

func BenchmarkPair(b *testing.B) {
	server := servers.Run(b, servers.Redis, "--appendonly", "no")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64})
	defer client.Close()
	ctx := context.Background()
	for _, protocol := range []redislock.Protocol{redislock.Redisson, redislock.Plain} {
		store, err := redislock.New(client, &redislock.Options{Protocol: protocol})
		if err != nil {
			b.Fatal(err)
		}
		locks := dlock.New(store, nil)
		for _, g := range []int{1, 2, 4, 64} {
			run := func(name string, pair func(name string) error) {
				b.Run(fmt.Sprintf("%v/%d/%s", protocol, g, name), func(b *testing.B) {
					var wg sync.WaitGroup
					for i := range g {
						wg.Go(func() {
							for range b.N/g + 1 {
								if err := pair(fmt.Sprintf("n%d", i)); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
				})
			}
			run("client", func(name string) error {
				l, err := locks.Lock(ctx, name)
				if err != nil {
					return err
				}
				return l.Unlock(ctx)
			})
			run("store", func(name string) error {
				grant, err := store.Acquire(ctx, driver.Request{Name: name, Owner: driver.NewOwner(), TTL: 30 * time.Second})
				if err != nil {
					return err
				}
				return store.Release(ctx, grant)
			})
			if protocol == redislock.Redisson {
				acq := redis.NewScript(`local l=redis.call('pttl',KEYS[1]) if l ~= -2 then return {redis.call('hkeys',KEYS[1])[1],l} end
local t=ARGV[3] local last=tonumber(redis.call('set',KEYS[2],t,'GET') or 0) or 0
if last >= tonumber(t) then t=string.format('%.0f',last+1) redis.call('set',KEYS[2],t) end
redis.call('hset',KEYS[1],ARGV[2]..':'..t..':'..ARGV[4],1) redis.call('pexpire',KEYS[1],ARGV[1]) return t`)
				rel := redis.NewScript(`if redis.call('hdel',KEYS[1],ARGV[1])==0 then return 0 end redis.pcall('publish',ARGV[2],'0') return 1`)
				run("bare", func(name string) error {
					o := driver.NewOwner().Hex()
					v, err := acq.Run(ctx, client, []string{name, "redisson_lock_token:{" + name + "}"}, 30000, o, time.Now().UnixMicro(), `{"host":"h","pid":1,"program":"x"}`).Text()
					if err != nil {
						return err
					}
					return rel.Run(ctx, client, []string{name}, o+":"+v+`:{"host":"h","pid":1,"program":"x"}`, "redisson_lock__channel:{"+name+"}").Err()
				})
			}
		}
		locks.Close()
		store.Close()
	}
}
