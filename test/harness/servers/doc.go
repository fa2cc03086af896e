// Package servers runs real servers for tests: each on a free port of the
// loopback interface, in a temporary folder of its own, with nothing left of
// either when the test is over, however it ends.
//
//	redis := servers.Run(t, servers.Redis)
//	client.Connect(redis.URL())
//	redis.Kill()                        // a crash
//	redis.Restart()                     // with the data that survived it
//	redis.Pause(); redis.Resume()       // a server that hangs
//
// Servers that belong together are started together, and their parts are
// servers like any other:
//
//	servers.RunGroup(t, 5, servers.Redis)                 // that know nothing of each other
//	servers.RunSentinel(t, servers.SentinelOptions{})     // master, replicas, sentinels
//	servers.RunCluster(t)                                 // masters with a replica each
//	servers.RunRedisTLS(t)                                // with users who may not do everything
//	servers.RunEnsemble(t)                                // three of ZooKeeper
//	servers.RunEtcdCluster(t, nil)                        // three of etcd, of a current version
//	servers.RunEtcdTLS(t)                                 // with certificates for clients
//	servers.Run(t, servers.WithClock(servers.Redis))      // then SetClock
//	servers.RunMariaDBPair(t, servers.PairOptions{})      // primary and replica; then Promote
//	servers.RunPostgresPair(t, servers.PairOptions{})
//	servers.Run(t, servers.PgBouncer(postgres, 2))        // two connections for everybody
//
// Databases have an administrator, for users who may do less than that of URL:
//
//	mariadb.SQL(ctx, "CREATE USER 'little'@'%' ..."); mariadb.URLAs("little", "...")
//
// Etcd is built from its module by scripts/build-etcd.sh, and EtcdDebian is Debian's.
//
// A test that only needs an address takes it from [URL], which honours
// DLOCK_TEST_REDIS=redis://... and the like.
//
// A [Kind] describes one sort of server; adding one takes one file. A server
// that is not installed is an error that says how to install it; nothing is
// skipped.
package servers
