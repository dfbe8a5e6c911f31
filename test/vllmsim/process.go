// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelberth/modelberth/test/vllmsim/args"
	"github.com/modelberth/modelberth/test/vllmsim/group"
	"github.com/modelberth/modelberth/test/vllmsim/launch"
)

// process is one run of vllm serve.
type process struct {
	log     logger
	signals <-chan os.Signal
	// end ends the run with an error as its cause.
	end    context.CancelCauseFunc
	env    map[string]string
	setup  *launch.Setup
	script *script
	// leader of a group of several machines; nil otherwise.
	leader *group.Leader
	// generations counts the requested ones, or the steps on a rank above 0.
	generations atomic.Int64
}

func (p *process) serve(ctx context.Context, arguments []string) error {
	parsed, err := args.Parse(arguments)
	if err != nil {
		return err
	}
	p.env = variables(os.Environ())
	cache := compileCache(p.env)
	// The error of a missing cache comes later, at vLLM's point of need.
	_ = os.MkdirAll(cache, 0o755)
	rules, err := parseScript(p.env["VLLMSIM_SCRIPT"])
	if err != nil {
		return err
	}
	p.script = &script{rules: rules, rank: int(parsed.Int("node-rank", 0)), dir: cache}
	if err := p.play(ctx, "start"); err != nil {
		return err
	}
	p.log.info("APIServer", "utils.py", "vLLM API server version %s", version)
	p.log.info("APIServer", "utils.py", "non-default args: %v", parsed.Shape())
	if p.setup, err = launch.Check(parsed, environment(p.env)); err != nil {
		return err
	}
	if p.setup.Rank > 0 {
		return p.follow(ctx)
	}
	if err := p.gather(ctx); err != nil {
		return err
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	return p.listen(ctx)
}

// play follows the script before the server is ready.
func (p *process) play(ctx context.Context, when string) error {
	r, found := p.script.take(when, 0)
	if !found {
		return nil
	}
	if r.action == "hang" {
		return p.wait(ctx, nil)
	}
	return act(r)
}

// count follows the script at a generation.
func (p *process) count(freeze func()) {
	if r, found := p.script.take("request", p.generations.Add(1)); found {
		p.strike(r, freeze)
	}
}

// strike follows a rule once the process is ready.
func (p *process) strike(r rule, freeze func()) {
	if r.action == "hang" {
		freeze()
		return
	}
	p.end(act(r))
}

// act ends the process.
func act(r rule) error {
	if r.action == "kill" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return &exit{code: r.code, say: r.words}
}

// wait returns when done is closed; never if it is nil. SIGTERM ends it.
func (p *process) wait(ctx context.Context, done <-chan time.Time) error {
	select {
	case <-done:
		return nil
	case <-p.signals:
		return terminated()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interruptible runs f with a context until SIGTERM.
func (p *process) interruptible(ctx context.Context, f func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(inner) }()
	select {
	case err := <-done:
		return err
	case <-p.signals:
		return terminated()
	}
}

// torchTimeout is torch's default wait for others, in seconds.
const torchTimeout = 600

func (p *process) distributedTimeout() time.Duration {
	return time.Duration(p.setup.Args.Int("distributed-timeout-seconds", torchTimeout)) * time.Second
}

const defaultMasterPort = 29501

func (p *process) masterPort() string {
	return strconv.FormatInt(p.setup.Args.Int("master-port", defaultMasterPort), 10)
}

// gather waits for the other machines.
func (p *process) gather(ctx context.Context) error {
	if p.setup.Nodes == 1 {
		return nil
	}
	p.log.info("EngineCore", "parallel_state.py", "world_size=%d rank=0 distributed_init_method=tcp://%s backend=nccl",
		p.setup.Tensor*p.setup.Pipeline, net.JoinHostPort(p.setup.Args.Text("master-addr", "127.0.0.1"), p.masterPort()))
	return p.interruptible(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.distributedTimeout())
		defer cancel()
		leader, err := group.Lead(ctx, ":"+p.masterPort(), p.setup.Nodes, p.setup.Args.Shape())
		if err != nil {
			return &launch.Error{Kind: "torch.distributed.DistStoreError", Message: err.Error()}
		}
		p.leader = leader
		p.log.info("EngineCore", "parallel_state.py", "all %d nodes joined", p.setup.Nodes)
		return nil
	})
}

// load takes its time, waits for the others and logs the memory figures.
func (p *process) load(ctx context.Context) error {
	if err := p.loadWeights(ctx); err != nil {
		return err
	}
	if p.leader != nil {
		err := p.interruptible(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, p.distributedTimeout())
			defer cancel()
			return p.leader.Loaded(ctx)
		})
		if _, ok := errors.AsType[*exit](err); ok {
			return err
		}
		if err != nil {
			return &launch.Error{Kind: "torch.distributed.DistBackendError", Message: err.Error()}
		}
	}
	if err := p.setup.Load(environment(p.env)); err != nil {
		return err
	}
	m := p.setup.Memory
	p.log.info("EngineCore", "gpu_worker.py", "Available KV cache memory: %.2f GiB", m.CacheGiB)
	p.log.info("EngineCore", "kv_cache_utils.py", "GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx",
		grouped(m.CacheTokens), grouped(p.setup.MaxLen), m.Concurrency)
	return p.compile(ctx)
}

func (p *process) loadWeights(ctx context.Context) error {
	took, err := duration(p.env, "VLLMSIM_LOAD")
	if err != nil {
		return err
	}
	p.log.info("Worker", "gpu_model_runner.py", "Starting to load model %s...", p.setup.Args.Model)
	if err := p.wait(ctx, time.After(took)); err != nil {
		return err
	}
	if err := p.play(ctx, "load"); err != nil {
		return err
	}
	share := float64(p.setup.Model.WeightBytes) / (1 << 30) / float64(p.setup.Tensor*p.setup.Pipeline)
	p.log.info("Worker", "gpu_model_runner.py", "Model loading took %.4f GiB memory and %.6f seconds", share, took.Seconds())
	return nil
}

// compile takes its time if the cache has nothing for this model cut this way.
func (p *process) compile(ctx context.Context) error {
	if p.setup.Args.On("enforce-eager", false) {
		return nil
	}
	took, err := duration(p.env, "VLLMSIM_COMPILE")
	if err != nil {
		return err
	}
	dir, key := compileCache(p.env), p.compileKey()
	found, err := compiled(dir, key)
	if err != nil {
		return err
	}
	if found {
		p.log.info("EngineCore", "backends.py", "Directly load the compiled graph(s) for dynamic shape from the cache")
		return nil
	}
	if err := p.wait(ctx, time.After(took)); err != nil {
		return err
	}
	p.log.info("EngineCore", "monitor.py", "torch.compile takes %.2f s in total", took.Seconds())
	return keepCompiled(dir, key)
}

func (p *process) compileKey() string {
	h := fnv.New64a()
	// Two maps with the same entries encode alike.
	_ = json.NewEncoder(h).Encode([]any{p.setup.Model.Config, p.setup.Tensor, p.setup.Pipeline})
	return fmt.Sprintf("%016x", h.Sum64())
}

// follow is the life of a rank above 0.
func (p *process) follow(ctx context.Context) error {
	address := net.JoinHostPort(p.setup.Args.Text("master-addr", ""), p.masterPort())
	p.log.info("APIServer", "serve.py", "Launching vLLM (v%s) headless multiproc executor, with head node address %s "+
		"for torch.distributed process group.", version, address)
	return p.interruptible(ctx, func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, p.distributedTimeout())
		defer cancel()
		member, err := group.Join(limited, address, p.setup.Rank, p.setup.Args.Shape())
		if err != nil {
			return &launch.Error{Kind: "torch.distributed.DistNetworkError", Message: err.Error()}
		}
		if err := p.loadWeights(ctx); err != nil {
			return err
		}
		limited, cancel = context.WithTimeout(ctx, p.distributedTimeout())
		defer cancel()
		if err := member.Loaded(limited); err != nil {
			return p.mourn(ctx, err)
		}
		p.log.info("Worker", "multiproc_executor.py", "rank %d is ready", p.setup.Rank)
		return p.work(ctx, member)
	})
}

// work makes steps. A hanging rank stays connected and makes none.
func (p *process) work(ctx context.Context, member *group.Member) error {
	frozen := make(chan struct{})
	freeze := sync.OnceFunc(func() { close(frozen) })
	if r, found := p.script.take("ready", 0); found {
		time.AfterFunc(r.after, func() { p.strike(r, freeze) })
	}
	return p.mourn(ctx, member.Work(ctx, func() {
		p.count(freeze)
		select {
		case <-frozen:
			<-ctx.Done()
		default:
		}
	}))
}

// mourn is a rank's reaction to a lost leader: it waits until the collective's time is over.
func (p *process) mourn(ctx context.Context, err error) error {
	if waited := p.wait(ctx, time.After(p.distributedTimeout())); waited != nil {
		return waited
	}
	return &launch.Error{Kind: "torch.distributed.DistBackendError", Message: fmt.Sprintf("[Rank %d] Watchdog caught collective operation "+
		"timeout: %v", p.setup.Rank, err)}
}
