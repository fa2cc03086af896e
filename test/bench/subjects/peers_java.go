package subjects

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/test/harness/checkout"
)

// curatorSubject is Java's InterProcessMutex, InterProcessReadWriteLock and
// InterProcessSemaphoreV2.
var curatorSubject = javaSubject("curator", "dlock.interop.CuratorContender", "SERVER")

// redissonSubject is Java's RLock, RReadWriteLock and RPermitExpirableSemaphore.
var redissonSubject = javaSubject("redisson", "dlock.interop.RedissonContender", redisURL)

// javaSubject is a library of Java, in the cases with processes. Every process warms
// up before it takes part, so that the measured code is compiled.
func javaSubject(name, class, url string) Subject {
	build := sync.OnceValues(func() (string, error) { return buildJava(name) })
	missing := func() error {
		_, err := build()
		return err
	}
	return Subject{Name: name, Missing: missing, Program: func(ctx context.Context, at Place, p Plan) (*exec.Cmd, error) {
		classpath, err := build()
		if err != nil {
			return nil, err
		}
		args := []string{
			"-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath, class,
			at.url(url), strings.ReplaceAll(p.Name, "/", "-"),
		}
		for _, n := range []int{p.Goroutines, int(p.Hold), int(p.Pause), p.Shared, p.Limit} {
			args = append(args, strconv.Itoa(n))
		}
		return exec.CommandContext(ctx, "java", args...), nil
	}}.modes().only("handover", "readers", "permits")
}

// buildJava builds the program of test/interop/NAME and returns its classpath.
func buildJava(name string) (string, error) {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("there is no %s", program)
		}
	}
	scripts, err := checkout.Folder("scripts")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(scripts, "build-java.sh"), name)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building it: %w: %s", err, complaints.String())
	}
	folder := strings.TrimSpace(string(output))
	libraries, err := os.ReadFile(filepath.Join(folder, "classpath"))
	return filepath.Join(folder, "classes") + string(filepath.ListSeparator) + string(libraries), err
}
