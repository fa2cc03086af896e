// Package servers runs real servers for tests: each on a free port of the
// loopback interface, in a temporary folder of its own. Nothing of them is left
// when the test ends, even after a crash of the test binary.
//
//	redis := servers.Run(t, servers.Redis)
//	client.Connect(redis.URL())
//	redis.Kill()                        // a crash
//	redis.Restart()                     // with the data that survived it
//	redis.Pause(); redis.Resume()       // a server that hangs
//
// Servers that belong together are started together. Each member is a [Server]:
//
//	servers.RunGroup(t, 5, servers.Redis)                 // independent servers
//	servers.RunSentinel(t, servers.SentinelOptions{})     // master, replicas, sentinels
//	servers.RunCluster(t)                                 // masters with a replica each
//	servers.RunRedisTLS(t)                                // with users of limited rights
//	servers.RunEnsemble(t)                                // ZooKeeper on three servers
//	servers.RunEtcdCluster(t, nil)                        // etcd on three servers, current version
//	servers.RunEtcdTLS(t)                                 // with certificates for clients
//	servers.Run(t, servers.WithClock(servers.Redis))      // then SetClock
//	servers.RunMariaDBPair(t, servers.PairOptions{})      // primary and replica; then Promote
//	servers.RunPostgresPair(t, servers.PairOptions{})
//	servers.Run(t, servers.PgBouncer(postgres, 2))        // two connections for all clients
//
// The user in the URL of a database is an administrator, and can create users with fewer rights.
//
// Etcd is built from its module by scripts/build-etcd.sh. EtcdDebian is Debian's
// package.
//
// A test that only needs an address takes it from [URL], which honours
// DLOCK_TEST_REDIS=redis://... and the like.
//
// A [Kind] describes one kind of server; adding a kind takes one file. If a
// server is not installed, the error explains how to install it. No test is
// skipped.
package servers
