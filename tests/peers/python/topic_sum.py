"""topic_sum.py BROKERS TOPIC FIELD…: reads all JSON messages of a topic with confluent-kafka, without a guest or a table.

Prints one JSON object: rows, the number of different values of the first field, and the checksum over the fields'
values as `read_table.py --checksum` makes it over columns. Properties of librdkafka come as --set NAME=VALUE.
"""

import argparse

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from common import checksum, show

MESSAGES_AT_A_TIME = 200_000


def messages(consumer, topic):
    """All values of a topic, partition after partition as they come, in lists."""
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    values, open_partitions = [], set(partitions)
    while open_partitions:
        for message in consumer.consume(10_000, timeout=1):
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        if len(values) >= MESSAGES_AT_A_TIME or not open_partitions:
            yield values
            values = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("fields", nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()

    consumer = Consumer({"bootstrap.servers": args.brokers, "group.id": "reader", "enable.auto.commit": False,
                         "enable.partition.eof": True, **dict(pair.split("=", 1) for pair in args.set)})
    fields = [f"value->>'$.{field}'" for field in args.fields]
    count, total, firsts = 0, 0, []
    for values in messages(consumer, args.topic):
        rows = pa.table({"value": pa.array([value.decode() for value in values], pa.string())})
        count += len(values)
        total += checksum(rows, fields)
        firsts.append(duckdb.sql(f"SELECT DISTINCT {fields[0]} AS id FROM rows").to_arrow_table())
    everywhere = pa.concat_tables(firsts)
    distinct = duckdb.sql("SELECT count(DISTINCT id) FROM everywhere").fetchone()[0]
    show({"rows": count, "distinct": distinct, "checksum": total % 2**64})


main()
