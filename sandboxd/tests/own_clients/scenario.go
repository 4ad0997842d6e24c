// What each client of freeboard.v1 must do, against a live daemon. Prints `ok` and a word for each.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"freeboard"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func assert(good bool, what any) {
	if !good {
		panic(fmt.Sprintf("%+v", what))
	}
}

func refused(reason string, err error) {
	var refused *freeboard.Refused
	assert(errors.As(err, &refused) && refused.Reason == reason, err)
}

func main() {
	url := os.Getenv("URL")
	client := must(freeboard.NewClient(url, os.Getenv("TOKEN")))
	one := freeboard.Start{
		Program:          freeboard.Program{Python: "import os,sys; sys.stdout.write(os.environ['A']); sys.exit(3)"},
		Environment:      []freeboard.Variable{{Name: "A", Value: "b"}},
		MinimumIsolation: "container", Key: "one",
	}
	first := must(client.Run(ctx, one))
	step := first.Result.Steps[0]
	assert(string(step.Stdout) == "b" && step.ExitCode == 3 && first.Executed == "yes", first)
	fmt.Println("ok result")
	assert(reflect.DeepEqual(must(client.Run(ctx, one)), first) && reflect.DeepEqual(must(client.GetByKey(ctx, "one")), first), first)
	fmt.Println("ok key")
	var content []byte
	for index := 0; index < 256; index++ {
		content = append(content, byte(index))
	}
	copied := must(client.Run(ctx, freeboard.Start{Program: freeboard.Program{Shell: "cp in.bin out.bin"},
		Files: []freeboard.File{{Path: "in.bin", Content: content}}, Artifacts: []string{"out.bin"}}))
	assert(bytes.Equal(copied.Result.Artifacts[0].Content, content), copied)
	fmt.Println("ok files")
	_, err := client.Run(ctx, freeboard.Start{Program: freeboard.Program{Shell: "true"}, MinimumIsolation: "kernel"})
	refused("isolation", err)
	_, err = client.Get(ctx, strings.Repeat("0", 32))
	refused("request", err)
	_, err = must(freeboard.NewClient(url, "wrong")).List(ctx, "")
	refused("permission", err)
	fmt.Println("ok refused")
	hello, _, err := client.Start(ctx, freeboard.Start{Program: freeboard.Program{Command: []string{"printf", "hello"}}})
	assert(err == nil, err)
	text := ""
	err = client.Follow(ctx, hello.Run, func(_ string, data []byte) { text += string(data) })
	assert(err == nil && text == "hello", text)
	fmt.Println("ok follow")
	sleeping, _, err := client.Start(ctx, freeboard.Start{Program: freeboard.Program{Command: []string{"sleep", "600"}}})
	assert(err == nil && must(client.List(ctx, ""))[0].Run == sleeping.Run, err)
	assert(must(client.Cancel(ctx, sleeping.Run)).Ending == "cancelled", sleeping)
	fmt.Println("ok cancel")
	own := must(client.Standings(ctx, false)).Callers[0]
	assert(own.Caller == "alice" && own.Running == 0 && own.MaxConcurrent > 0, own)
	administrator := must(freeboard.NewClient(url, os.Getenv("ADMIN")))
	everybody := must(administrator.Standings(ctx, true))
	assert(len(everybody.Callers) > 1 && everybody.Daemon.MaxConcurrent > 0, everybody)
	theirs := must(administrator.ListEverybody(ctx, "ended"))
	assert(theirs[0].Run == sleeping.Run && theirs[0].Caller == "alice", theirs)
	_, err = client.Standings(ctx, true)
	refused("permission", err)
	_, err = client.ListEverybody(ctx, "")
	refused("permission", err)
	_, err = client.Grants(ctx, "none")
	refused("unsupported", err)
	fmt.Println("ok callers")
	cat, _, err := client.Start(ctx, freeboard.Start{Program: freeboard.Program{Command: []string{"cat"}},
		Stdin: &freeboard.Stdin{Data: []byte("one "), Open: true}, Limits: &freeboard.Limits{OutputBytes: 8}})
	assert(err == nil && must(client.Write(ctx, cat.Run, 4, []byte("two "), false)) == 8, err)
	assert(must(client.Write(ctx, cat.Run, 4, []byte("two three"), true)) == 13, cat)
	err = client.Follow(ctx, cat.Run, func(string, []byte) {})
	assert(err == nil, err)
	fed := must(client.Get(ctx, cat.Run))
	assert(string(fed.Result.Steps[0].Stdout) == "one two " && fed.Result.Stdin.Bytes == 13, fed)
	_, err = client.Run(ctx, freeboard.Start{Program: freeboard.Program{Shell: "true"}, Limits: &freeboard.Limits{MemoryMib: 1 << 20}})
	refused("unsupported", err)
	fmt.Println("ok stdin")
	for index := 0; index < 6; index++ {
		run, sent, err := client.Start(ctx, freeboard.Start{Program: freeboard.Program{Shell: "echo x"}, Wait: 20, Key: "tamper"})
		assert(err == nil, err)
		_ = must(freeboard.Check(run, sent, ""))
		switch index {
		case 0:
			run.Result.Steps[0].Stdout = []byte("y")
		case 1:
			run.Record.Isolation = "vm"
		case 2:
			run.Record.Run = "other"
		case 3:
			run.Record = nil
		case 4:
			run.Result.Requests = &freeboard.Requests{Allowed: 1}
		case 5:
			run.Result.Stdin = &freeboard.Taken{}
		}
		var failed *freeboard.Failed
		_, err = freeboard.Check(run, sent, "")
		assert(errors.As(err, &failed), err)
	}
	fmt.Println("ok tampering")
	_, err = freeboard.NewClient("http://example.test", "x")
	assert(err != nil, "a clear-text URL of another host")
	fmt.Println("ok url")
}
