// Records histories of concurrent operations on a store, and checks that each is linearizable.
//
//	histories -endpoint http://127.0.0.1:9000 -operations 100000 [-versions] [-seed 1]
//
// Clients change and read a few keys concurrently. Each round has separate keys, and porcupine
// compares the history of the round with the model below: a key is a register or, in a bucket with
// versions, a stack. If the store was killed before its reply, the operation has no end: it may
// happen at any later time, even after all reads. At the end of a round, all keys are read once
// more. The account's keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Exits with 1 if a
// history is not linearizable.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

type kind int

const (
	get kind = iota
	head
	list
	put
	complete // completes a multipart upload
	remove
	removeVersion
	versions
)

var names = map[kind]string{get: "get", head: "head", list: "list", put: "put", complete: "complete",
	remove: "delete", removeVersion: "delete version", versions: "list versions"}

type input struct {
	key     string
	kind    kind
	value   int64  // written value
	match   int64  // value whose ETag is in If-Match; 0 if none
	none    bool   // If-None-Match: *
	version string // for removeVersion
}

type output struct {
	unknown bool  // the reply was lost
	nothing bool  // no reply, but the object is certainly unchanged
	failed  bool  // 412, or 404 for a condition on a missing object
	value   int64 // read; 0 if there is no object
	version string
	stack   string // listed versions
}

// Returns the entries of a key, oldest first. An entry is "VERSION=VALUE"; VERSION is "?" if the
// reply was lost, and VALUE is 0 for a delete marker. A state is these entries, separated by
// spaces.
func entries(state string) []string {
	return strings.Fields(state)
}

func value(entry string) int64 {
	n, _ := strconv.ParseInt(entry[strings.IndexByte(entry, '=')+1:], 10, 64)
	return n
}

func current(state string) int64 {
	all := entries(state)
	if len(all) == 0 {
		return 0
	}
	return value(all[len(all)-1])
}

func same(state, seen string) bool {
	a, b := entries(state), entries(seen)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !(strings.HasPrefix(a[i], "?") && value(a[i]) == value(b[i])) {
			return false
		}
	}
	return true
}

// Returns the state after a successful change.
func after(state string, in input, version string, versioned bool) string {
	if version == "" {
		version = "?"
	}
	switch {
	case in.kind == removeVersion:
		kept := []string{}
		for _, entry := range entries(state) {
			if !strings.HasPrefix(entry, in.version+"=") {
				kept = append(kept, entry)
			}
		}
		return strings.Join(kept, " ")
	case in.kind == remove && !versioned:
		return ""
	case !versioned:
		return fmt.Sprintf("?=%d", in.value)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s=%d", state, version, in.value))
}

func allowed(state string, in input) bool {
	now := current(state)
	if in.none {
		return now == 0
	}
	// A DELETE of a missing object succeeds, with any condition.
	return in.match == 0 || now == in.match || now == 0 && in.kind == remove
}

func model(versioned bool) porcupine.Model {
	step := func(s, i, o interface{}) (bool, interface{}) {
		state, in, out := s.(string), i.(input), o.(output)
		switch in.kind {
		case get, head, list:
			return out.unknown || out.value == current(state), state
		case versions:
			return out.unknown || same(state, out.stack), state
		}
		if out.failed {
			return !allowed(state, in), state
		}
		if !allowed(state, in) {
			return out.unknown && out.version == "", state
		}
		// Version names grow with time, which excludes most orders and makes the search
		// short.
		if all := entries(state); out.version != "" && len(all) > 0 && all[len(all)-1] > out.version && all[len(all)-1][0] != '?' {
			return false, state
		}
		return true, after(state, in, out.version, versioned)
	}
	return porcupine.Model{Partition: byKey, Init: func() interface{} { return "" }, Step: step}
}

func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, one := range history {
		key := one.Input.(input).key
		parts[key] = append(parts[key], one)
	}
	all := [][]porcupine.Operation{}
	for _, part := range parts {
		all = append(all, part)
	}
	return all
}

// Returns the body of a value: its number, repeated up to a length. The store keeps short bodies in
// its index and long ones in files, and the longest arrive in several pieces.
func body(value int64) []byte {
	sizes := []int{8, 4096, 20000, 300000}
	size := sizes[0]
	if value%7 == 0 {
		size = sizes[int(value/7)%len(sizes)]
	}
	text := fmt.Sprintf("%015d\n", value)
	return []byte(strings.Repeat(text, size/len(text)+1))
}

func parse(data []byte) int64 {
	if len(data) < 16 {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimLeft(string(data[:15]), "0"), 10, 64)
	if err != nil || !bytes.Equal(body(n), data) {
		return -1
	}
	return n
}

type run struct {
	bucket    string
	client    *s3.Client
	versioned bool
	next      atomic.Int64
	etags     sync.Map // ETag to value
	values    sync.Map // value to ETag
	lost      atomic.Int64
	began     time.Time
}

func (r *run) newValue(parts bool) int64 {
	n := r.next.Add(1)
	sum := md5.Sum(body(n))
	etag := hex.EncodeToString(sum[:])
	if parts {
		sum = md5.Sum(sum[:])
		etag = hex.EncodeToString(sum[:]) + "-1"
	}
	etag = `"` + etag + `"`
	r.etags.Store(etag, n)
	r.values.Store(n, etag)
	return n
}

func (r *run) valueOf(etag *string) int64 {
	n, ok := r.etags.Load(aws.ToString(etag))
	if !ok {
		return -1 // never written, so no state of the model has it
	}
	return n.(int64)
}

func (r *run) etagOf(value int64) *string {
	if value == 0 {
		return nil
	}
	etag, _ := r.values.Load(value)
	return aws.String(etag.(string))
}

func star(is bool) *string {
	if is {
		return aws.String("*")
	}
	return nil
}

// Performs one operation. Returns an error only if the store must never send such a reply.
func (r *run) do(in input) (output, error) {
	ctx, key := context.Background(), aws.String(in.key)
	out, err := output{}, error(nil)
	switch in.kind {
	case get:
		var reply *s3.GetObjectOutput
		if reply, err = r.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(r.bucket), Key: key}); err == nil {
			var data []byte
			data, err = io.ReadAll(reply.Body)
			reply.Body.Close()
			if err == nil {
				out.value = parse(data)
			}
		}
	case head:
		var reply *s3.HeadObjectOutput
		if reply, err = r.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: aws.String(r.bucket), Key: key}); err == nil {
			out.value = r.valueOf(reply.ETag)
		}
	case list:
		var reply *s3.ListObjectsV2Output
		if reply, err = r.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String(r.bucket), Prefix: key}); err == nil && len(reply.Contents) == 1 {
			out.value = r.valueOf(reply.Contents[0].ETag)
		}
	case versions:
		out.stack, err = r.stack(ctx, key)
	case put:
		var reply *s3.PutObjectOutput
		if reply, err = r.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(r.bucket), Key: key, Body: bytes.NewReader(body(in.value)),
			IfNoneMatch: star(in.none), IfMatch: r.etagOf(in.match)}); err == nil {
			out.version = aws.ToString(reply.VersionId)
		}
	case complete:
		return r.complete(ctx, in)
	case remove:
		var reply *s3.DeleteObjectOutput
		if reply, err = r.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(r.bucket), Key: key, IfMatch: r.etagOf(in.match)}); err == nil {
			out.version = aws.ToString(reply.VersionId)
		}
	case removeVersion:
		_, err = r.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(r.bucket), Key: key, VersionId: aws.String(in.version)})
	}
	return r.judge(in, out, err)
}

// A lost reply is unknown, and a failed condition or a missing object is an output. Any other error
// is a defect of the store.
func (r *run) judge(in input, out output, err error) (output, error) {
	var reply *awshttp.ResponseError
	if err == nil {
		return out, nil
	}
	if !errors.As(err, &reply) || reply.HTTPStatusCode() == http.StatusServiceUnavailable || reply.HTTPStatusCode() < 300 {
		r.lost.Add(1)
		return output{unknown: true, nothing: errors.Is(err, syscall.ECONNREFUSED)}, nil
	}
	switch status := reply.HTTPStatusCode(); {
	case status == http.StatusNotFound && (in.kind == get || in.kind == head):
		return output{}, nil
	case status == http.StatusPreconditionFailed, status == http.StatusNotFound && in.match != 0:
		return output{failed: true}, nil
	}
	return out, err
}

func (r *run) stack(ctx context.Context, key *string) (string, error) {
	reply, err := r.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: aws.String(r.bucket), Prefix: key})
	if err != nil {
		return "", err
	}
	type entry struct {
		text, version string
		latest        bool
	}
	// Each of the two lists has the newest entry first; version names grow with time.
	all := []entry{}
	for _, one := range reply.Versions {
		all = append(all, entry{fmt.Sprintf("%s=%d", *one.VersionId, r.valueOf(one.ETag)), *one.VersionId, *one.IsLatest})
	}
	for _, one := range reply.DeleteMarkers {
		all = append(all, entry{fmt.Sprintf("%s=0", *one.VersionId), *one.VersionId, *one.IsLatest})
	}
	for i := range all {
		for j := i; j > 0 && all[j].version < all[j-1].version; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	texts := []string{}
	for i, one := range all {
		if one.latest != (i == len(all)-1) {
			return "", fmt.Errorf("the version of '%s' that is marked as latest is not the newest", *key)
		}
		texts = append(texts, one.text)
	}
	return strings.Join(texts, " "), nil
}

func (r *run) complete(ctx context.Context, in input) (output, error) {
	place := &s3.CreateMultipartUploadInput{Bucket: aws.String(r.bucket), Key: aws.String(in.key)}
	upload, err := r.client.CreateMultipartUpload(ctx, place)
	if err != nil {
		return r.unstarted(err)
	}
	part, err := r.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: place.Bucket, Key: place.Key, UploadId: upload.UploadId,
		PartNumber: aws.Int32(1), Body: bytes.NewReader(body(in.value))})
	if err != nil {
		return r.unstarted(err)
	}
	reply, err := r.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: place.Bucket, Key: place.Key,
		UploadId: upload.UploadId, IfNoneMatch: star(in.none), IfMatch: r.etagOf(in.match),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{PartNumber: aws.Int32(1), ETag: part.ETag}}}})
	out := output{}
	if err == nil {
		out.version = aws.ToString(reply.VersionId)
	}
	return r.judge(in, out, err)
}

// If the upload could not start, nothing has changed.
func (r *run) unstarted(err error) (output, error) {
	out, err := r.judge(input{}, output{}, err)
	out.nothing = out.unknown
	return out, err
}

func (r *run) choose(random *rand.Rand, key string, known []output) input {
	in := input{key: key}
	seen := output{}
	if len(known) > 0 {
		seen = known[random.Intn(len(known))]
	}
	switch dice := random.Intn(100); {
	case dice < 25:
		in.kind = get
	case dice < 35:
		in.kind = head
	case dice < 45:
		in.kind = list
	case dice < 70:
		in.kind = put
	case dice < 78:
		in.kind = complete
	case dice < 90 || !r.versioned:
		in.kind = remove
	case dice < 95 && seen.version != "":
		in.kind, in.version = removeVersion, seen.version
	default:
		in.kind = versions
	}
	if in.kind == put || in.kind == complete {
		in.value = r.newValue(in.kind == complete)
		in.none = random.Intn(6) == 0
	}
	if (in.kind == put || in.kind == complete || in.kind == remove) && !in.none && seen.value > 0 && random.Intn(4) == 0 {
		in.match = seen.value
	}
	return in
}

// Runs a round of `count` operations on separate keys; returns the history.
func (r *run) round(number, clients, keys, count int, seed int64) ([]porcupine.Operation, error) {
	var wait sync.WaitGroup
	histories, failures := make([][]porcupine.Operation, clients), make([]error, clients)
	for c := 0; c < clients; c++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			histories[c], failures[c] = r.work(rand.New(rand.NewSource(seed+int64(number*clients+c))), c, number, keys, count/clients)
		}()
	}
	wait.Wait()
	all := []porcupine.Operation{}
	for c := range histories {
		all = append(all, histories[c]...)
		if failures[c] != nil {
			return all, failures[c]
		}
	}
	lists := map[string]string{}
	for k := 0; k < keys; k++ {
		for _, what := range []kind{get, versions} {
			if what == versions && !r.versioned {
				continue
			}
			done, err := r.timed(clients, input{key: fmt.Sprintf("%d/%d", number, k), kind: what})
			for err == nil && done.Output.(output).unknown {
				time.Sleep(10 * time.Millisecond)
				done, err = r.timed(clients, done.Input.(input))
			}
			if err != nil {
				return all, err
			}
			all = append(all, done)
			if what == versions {
				lists[done.Input.(input).key] = done.Output.(output).stack
			}
		}
	}
	if r.versioned {
		return r.found(all, lists), nil
	}
	return all, nil
}

// Sets the versions of changes whose replies were lost, as the last lists show them. Drops the
// other lost changes: the store was killed, so they can never happen, and the search would try all
// places for them. A delete marker has no value, so it is attributed to the last lost delete before
// the time in the marker's name. Deletes without a condition are preferred, because after them any
// condition holds.
func (r *run) found(history []porcupine.Operation, lists map[string]string) []porcupine.Operation {
	versions, claimed, lost := map[int64]string{}, map[string]bool{}, map[int]string{}
	for _, one := range history {
		claimed[one.Output.(output).version] = true
	}
	for key, list := range lists {
		for _, entry := range entries(list) {
			version := entry[:strings.IndexByte(entry, '=')]
			if value(entry) != 0 {
				versions[value(entry)] = version
				continue
			}
			time, _ := strconv.ParseInt(version, 16, 64)
			last := -1
			for i, one := range history {
				in, out := one.Input.(input), one.Output.(output)
				if in.key == key && in.kind == remove && out.unknown && lost[i] == "" && one.Call <= time-r.began.UnixNano() &&
					(last < 0 || history[last].Input.(input).match != 0 && in.match == 0 ||
						history[last].Call < one.Call && (history[last].Input.(input).match == 0) == (in.match == 0)) {
					last = i
				}
			}
			if !claimed[version] && last >= 0 {
				lost[last] = version
			}
		}
	}
	kept := []porcupine.Operation{}
	for i, one := range history {
		in, out := one.Input.(input), one.Output.(output)
		if out.unknown && in.kind != removeVersion {
			out.version = lost[i]
			if in.value != 0 {
				out.version = versions[in.value]
			}
			if out.version == "" {
				continue
			}
			one.Output = out
		}
		kept = append(kept, one)
	}
	return kept
}

func (r *run) work(random *rand.Rand, client, round, keys, count int) ([]porcupine.Operation, error) {
	history, known := []porcupine.Operation{}, map[string][]output{}
	for i := 0; i < count; i++ {
		key := fmt.Sprintf("%d/%d", round, random.Intn(keys))
		in := r.choose(random, key, known[key])
		done, err := r.timed(client, in)
		if err != nil {
			return history, fmt.Errorf("%s of %s: %w", names[in.kind], key, err)
		}
		out := done.Output.(output)
		if out.unknown {
			time.Sleep(10 * time.Millisecond) // the store may be restarting
		} else if in.value != 0 && !out.failed {
			out.value = in.value
		}
		// Many operations without an end would make the search long, so repeat this one.
		if out.nothing {
			i--
			continue
		}
		if out.value > 0 || out.version != "" {
			known[key] = append(known[key], out)
		}
		// A read without a reply gives no information.
		if !out.unknown || in.kind >= put && in.kind != versions {
			history = append(history, done)
		}
	}
	return history, nil
}

func (r *run) timed(client int, in input) (porcupine.Operation, error) {
	call := time.Since(r.began).Nanoseconds()
	out, err := r.do(in)
	end := time.Since(r.began).Nanoseconds()
	if out.unknown {
		end = 1 << 62
	}
	return porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end}, err
}

// Returns the operations of the first key whose history is not linearizable, oldest first.
func wrong(versioned bool, history []porcupine.Operation) []porcupine.Operation {
	for _, part := range byKey(history) {
		if porcupine.CheckOperationsTimeout(model(versioned), part, time.Minute) != porcupine.Ok {
			sort.Slice(part, func(a, b int) bool { return part[a].Call < part[b].Call })
			return part
		}
	}
	return nil
}

func main() {
	endpoint := flag.String("endpoint", "", "URL of the store")
	operations := flag.Int("operations", 10000, "total number of operations")
	perRound := flag.Int("round", 400, "operations per round")
	clients := flag.Int("clients", 8, "concurrent clients")
	keys := flag.Int("keys", 4, "keys per round")
	versioned := flag.Bool("versions", false, "use a bucket with versions")
	name := flag.String("bucket", "histories", "bucket to create")
	seed := flag.Int64("seed", time.Now().UnixNano(), "seed of the random operations")
	flag.Parse()
	fmt.Printf("seed %d\n", *seed)

	r := &run{bucket: *name, versioned: *versioned, began: time.Now()}
	r.client = s3.New(s3.Options{
		BaseEndpoint: endpoint, UsePathStyle: true, Region: "us-east-1", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
		HTTPClient:  &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: *clients}},
	})
	if err := r.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
	for done, number := 0, 0; done < *operations; done, number = done+*perRound, number+1 {
		history, err := r.round(number, *clients, *keys, *perRound, *seed)
		if err != nil {
			fmt.Fprintln(os.Stderr, "histories:", err)
			os.Exit(1)
		}
		if result := porcupine.CheckOperationsTimeout(model(*versioned), history, time.Minute); result != porcupine.Ok {
			fmt.Fprintf(os.Stderr, "histories: round %d is not linearizable: %s\n", number, result)
			for _, one := range wrong(*versioned, history) {
				fmt.Fprintf(os.Stderr, "%d %d %d %s %+v -> %+v\n", one.ClientId, one.Call, one.Return, names[one.Input.(input).kind], one.Input, one.Output)
			}
			os.Exit(1)
		}
	}
	fmt.Printf("%d operations are linearizable; %d replies were lost\n", *operations, r.lost.Load())
}

func (r *run) prepare() error {
	ctx := context.Background()
	if _, err := r.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(r.bucket)}); err != nil {
		return err
	}
	if !r.versioned {
		return nil
	}
	_, err := r.client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: aws.String(r.bucket),
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	return err
}
