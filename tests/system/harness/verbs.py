"""A bucket and a directory, for tests of the commands that copy between them."""
import os


class Fixture:
    """A store with s3://bucket, and a directory for local files."""

    def __init__(self, penstock, env, client, folder, name):
        self.penstock, self.env, self.client, self.folder, self.name = penstock, env, client, folder, name
        client.create_bucket(Bucket="bucket")

    def __call__(self, *arguments, input=None, env=None):
        return self.penstock.run(*arguments, env=self.env | (env or {}), cwd=self.folder, input=input)

    def put(self, *keys, body=None, bucket="bucket"):
        for key in keys:
            self.client.put_object(Bucket=bucket, Key=key, Body=key.encode() if body is None else body)

    def keys(self, bucket="bucket"):
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]

    def empty(self):
        for key in self.keys():
            self.client.delete_object(Bucket="bucket", Key=key)

    def bytes(self, key, bucket="bucket"):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def write(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def files(self, below="."):
        """Returns the relative paths of all files and links, and of empty directories, with a slash."""
        found = []
        for parent, directories, names in os.walk(self.folder / below):
            for name in names:
                found.append(os.path.relpath(os.path.join(parent, name), self.folder / below))
            for name in directories:
                path = os.path.join(parent, name)
                if os.path.islink(path) or not os.listdir(path):
                    found.append(os.path.relpath(path, self.folder / below) + ("" if os.path.islink(path) else "/"))
        return sorted(found)

    def read(self, name):
        return (self.folder / name).read_bytes()
